"""``examples/ray_train.py`` on a Ray that nobody else can reach: ``ray_on_loopback.py SCRIPT``."""

import runpy
import sys

import ray

ray.init("local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
runpy.run_path(sys.argv[1], run_name="__main__")

"""Scripts, one after another, on a Ray that nobody else can reach: ``... FOLDER SCRIPT ...``."""

import runpy
import sys

import ray

shutdown, ray.shutdown = ray.shutdown, lambda: None
ray.init("local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
for script in sys.argv[2:]:
    runpy.run_path(script, run_name="__main__")
shutdown()

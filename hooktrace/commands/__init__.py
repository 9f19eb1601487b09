"""The command line, and what it runs that needs the whole package: ``demo`` and ``bench``.

    options in line.py --> demo.run(DemoOptions)  --> files, tables, exit code
                       --> bench.run(groups, ...) --> rows, exit code

``report`` and ``export`` are in ``analysis``, ``check`` is in ``testing``.
"""

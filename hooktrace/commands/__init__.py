"""What the command line runs that needs the whole package: ``demo`` and ``bench``.

    options of __main__ --> demo.run(DemoOptions)  --> files, tables, exit code
                        --> bench.run(groups, ...) --> rows, exit code

``report`` and ``export`` are in ``analysis``, ``check`` is in ``testing``.
"""

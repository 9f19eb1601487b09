"""``hooktrace whatif`` and ``hooktrace advise``: a calibrated run, asked.

run --analysis.whatif--> Answer, Advised --command.py--> terminal, JSON, page, predicted run
Choice --paste.py--> code            the best two --verify.py--> runs of the demo, measured
                                                  --script.py, job.py--> or of the user's command
"""

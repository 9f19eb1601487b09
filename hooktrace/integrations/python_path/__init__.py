"""A folder for ``PYTHONPATH``: Python imports ``sitecustomize`` when it starts, before a script."""

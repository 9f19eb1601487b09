"""What is in ``dashboards/`` is fresh, names metrics that exist, and shows data of a real job."""

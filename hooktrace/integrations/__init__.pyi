from .trackers import log_to as log_to

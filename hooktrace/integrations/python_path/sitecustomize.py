"""Sets hooktrace up in a child process, then hands over to the sitecustomize that this one hides.

It may be another environment's Python that starts here, without hooktrace: that is no error.
"""

import importlib
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_myself = sys.modules.pop("sitecustomize", None)
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _here]
for _module, _call in (("hooktrace.integrations.start", "begin"), ("sitecustomize", "")):
    try:
        _found = importlib.import_module(_module)
        if _call:
            getattr(_found, _call)()
    except ImportError:
        pass
if _myself is not None:
    sys.modules.setdefault("sitecustomize", _myself)

"""`headway ui`: pages over one or several stores on this machine: runs, versions, spans, drift."""

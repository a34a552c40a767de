"""Other model servers that serve the mixture of ours, each in an environment of its own.

`scorer` is the model, the same for all; `plain`, `lit`, `ml` and `bento` are what a user of
FastAPI, LitServe, MLServer and BentoML would write around it; `registry` says how each is
started and asked; `environment` installs it; `process` starts and ends it; `load` asks it.
"""

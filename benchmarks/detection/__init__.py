"""The comparison behind `gmr bench drift`: every detector on every kind of change.

Rules: streams are pure functions of data, name and seed; the engine is driven in process,
the model learning all the while; what is found is compared with what is true by the
definitions in `measures.py` and no others.
"""

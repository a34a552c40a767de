"""The comparison behind `gmr bench streams`: who names the next samples of a table best?

Rules: streams are pure functions of a seed and a length; everybody is driven in the same way, one
batch at a time, and names all of a batch before any of its labels is learned; numbers are those
defined in `measures.py` and no others.
"""

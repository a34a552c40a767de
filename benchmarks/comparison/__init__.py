"""The comparison behind `gmr bench paper`: every system on every task of the paper.

Rules: a result is measured once, written as one file, and never measured again while
what determines it stays the same; tables and pictures are made from such files only.
"""

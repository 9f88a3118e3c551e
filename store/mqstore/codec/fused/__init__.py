"""Columns of messages from the decode kernel of native/, in one pass over the records.

``columns`` has a row for each column that the kernel can make. A read of any other column, and a
batch with a record that the kernel leaves, goes to decode.py, which is the definition of all.
"""

"""``mqlog report``: what stores hold and what is behind, as one HTML page.

``gather`` reads the stores into the plain values of ``facts``, in bounded time and memory;
``page`` turns them into elements of ``markup``, which escapes every text; ``charts`` draws them.
"""

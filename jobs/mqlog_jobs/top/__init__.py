"""``mqlog top``: what comes in, what groups consume, and how long they need to catch up.

``meter`` looks at the stores again and again and makes rows of it; ``frame`` draws them;
``screen`` shows frames on a terminal and reads keys.
"""

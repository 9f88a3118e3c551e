"""Why a consumer group is behind: rules over facts, each with the numbers that made it speak.

``facts`` are what is known of a group, ``rules`` the verdicts: pure functions of them.
"""

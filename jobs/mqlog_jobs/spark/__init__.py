"""Jobs for ``spark-submit``, a program each, and what they share."""

"""Runnable jobs and the mqlog command."""

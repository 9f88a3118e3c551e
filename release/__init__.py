"""What makes a release: wheels for all platforms, their checks, and the tag. See README.md."""

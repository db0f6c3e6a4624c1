"""The filters of the list of calls, and the list itself."""

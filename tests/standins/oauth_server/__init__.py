"""A real OAuth server (django-oauth-toolkit) as a process with its own settings and database."""

"""An OAuth server that others wrote (django-oauth-toolkit), as a process with settings and a database of its own."""

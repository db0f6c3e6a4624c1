"""A stock Django project for comparison: REST framework with simplejwt, as their own documentation sets them up.

RS256, refresh tokens with rotation and blacklist, and one page of a licence that is read by ORM and serializer. It has
no rate limits, no caches, no kill switch and no log of its own; passwords are hashed with the service's parameters.
"""

"""Wire formats of platforms that serve models of several makers, each in the platform's words."""

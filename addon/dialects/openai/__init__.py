"""Wire formats of OpenAI, and of everyone who writes them in another spelling."""

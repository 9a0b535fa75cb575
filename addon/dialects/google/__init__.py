"""Wire formats of Google: Gemini, Vertex AI, the Interactions API."""

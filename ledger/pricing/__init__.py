"""Pricing: price sources, price lines, overrides, charges.

In: an exchange and its reading. Out: charges, each with the source of its price.
Uses: model, settings, text.
"""

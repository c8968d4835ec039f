"""A server under attack: is it there for the others meanwhile?"""

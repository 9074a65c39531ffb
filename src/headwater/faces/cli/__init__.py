"""faces/cli"""

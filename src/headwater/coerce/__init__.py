"""coerce"""

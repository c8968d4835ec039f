"""Uploads as a server has them: the clock, the ids, the files, and the end of interrupted ones."""

"""Byte access: local files, remote stores with retries and a cache, and indexes over both."""

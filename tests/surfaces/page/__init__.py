"""Tests of the page. They are a package so that a browser can last as long as their folder."""

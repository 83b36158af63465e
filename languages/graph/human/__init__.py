"""People in the loop: how a person is asked, which answers count, and what they say."""

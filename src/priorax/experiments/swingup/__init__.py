"""Sparse cartpole swing-up in the form of the paper: the equal search and figures 5 and 11."""

"""DeepSea: learning times against its size, what each part of the agent contributes, and the equal search."""

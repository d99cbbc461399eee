"""The paper's open questions on priors: which, learned ones, and one network instead of an ensemble."""

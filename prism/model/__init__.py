"""The paper's section 3, one file per idea."""

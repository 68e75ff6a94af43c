"""The paper's experiments: what to run (`spec`), how one batch is run (`batch`), and all of them (`pool`)."""

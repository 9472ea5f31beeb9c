"""Remote stores: requests, their retries, and the checks of responses."""

"""Keeps the libraries of the loaders offline and quiet. Import it before any of them."""

import os
import warnings

OFFLINE_AND_QUIET = {
    "HF_HUB_OFFLINE": "1",  # nothing here needs the network
    "HF_DATASETS_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",  # TensorFlow logs errors only
    "TF_ENABLE_ONEDNN_OPTS": "0",  # avoids one more log line of TensorFlow
}

# The libraries read them when they are imported, so they must be set before.
for _name, _value in OFFLINE_AND_QUIET.items():
    os.environ.setdefault(_name, _value)

# In a notebook, tqdm, which some of them import, warns about a package that is not needed here.
warnings.filterwarnings("ignore", message="IProgress not found")

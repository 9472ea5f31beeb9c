"""Keeps the loaders' libraries offline and quiet; import it before any of them."""

import os
import warnings

OFFLINE_AND_QUIET = {
    "HF_HUB_OFFLINE": "1",  # nothing here needs the network
    "HF_DATASETS_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",  # TensorFlow: errors alone
    "TF_ENABLE_ONEDNN_OPTS": "0",  # spares one more line of it
}

# They are read when the libraries are imported, so that setting them later is too late.
for _name, _value in OFFLINE_AND_QUIET.items():
    os.environ.setdefault(_name, _value)

# In a notebook tqdm, which some of them import, asks for a package that nothing here needs.
warnings.filterwarnings("ignore", message="IProgress not found")

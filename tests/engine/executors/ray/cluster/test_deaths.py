"""What an actor died of is a part of a sentence, without the paragraphs of Ray."""

from gristmill._engine.executors.ray.cluster.deaths import cause_of_death

CRASH = """The actor died unexpectedly before finishing this task.
\tclass_name: GristmillWorker
\tpid: 4
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes \
include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop."""


def test_a_crash_is_short():
    assert cause_of_death(RuntimeError(CRASH)) == (
        "a crash or a kill of its process, such as for lack of memory"
    )


def test_another_end_is_the_first_sentence_of_ray():
    error = RuntimeError("The actor died.\nIts node has died. Node Id: 5f. See the logs.")

    assert cause_of_death(error) == "an end that Ray explains by 'Its node has died'"
    assert cause_of_death(RuntimeError()) == "RuntimeError"

"""Makes the profile of TensorFlow in tests/data: four steps of a small layer on one thread of a CPU.

pip install tensorflow-cpu && python benchmarks/tensorflow_profile.py tests/data/tensorflow_cpu
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

WIDTH, BATCH, STEPS = 256, 64, 4


def main() -> int:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    weight = tf.Variable(tf.random.normal((WIDTH, WIDTH)))

    def step(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.relu(tf.matmul(inputs, weight)) ** 2)
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    compiled = tf.function(step)
    inputs = tf.random.normal((BATCH, WIDTH))
    for _ in range(3):
        compiled(inputs)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for number in range(STEPS):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                compiled(inputs)
        tf.profiler.experimental.stop()
        (profile,) = Path(folder).glob("plugins/profile/*/*.xplane.pb")
        shutil.copy(profile, Path(sys.argv[1]) / "tensorflow.xplane.pb")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes the profile of ONNX Runtime in tests/data: four runs of a small perceptron on one thread of a CPU.

pip install onnx onnxruntime && python benchmarks/onnx_profile.py tests/data/onnxruntime_mlp
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LAYERS, WIDTH, BATCH, RUNS = 3, 256, 64, 4


def main() -> int:
    random = np.random.default_rng(0)
    shape, kind = [BATCH, WIDTH], TensorProto.FLOAT
    weights, nodes, last = [], [], "x"
    for layer in range(LAYERS):
        values = (random.standard_normal((WIDTH, WIDTH)) * 0.05).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"], name=f"layer{layer}/MatMul"))
        nodes.append(helper.make_node("Softmax", [f"m{layer}"], [f"s{layer}"], name=f"layer{layer}/Softmax"))
        last = f"s{layer}"
    ends = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", last)]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    options.profile_file_prefix = str(Path(sys.argv[1]) / "onnxruntime_profile")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = {"x": random.standard_normal(shape).astype(np.float32)}
    for _ in range(RUNS):
        session.run(None, inputs)
    print(session.end_profiling())
    return 0


if __name__ == "__main__":
    sys.exit(main())

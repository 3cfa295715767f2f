// Where PyTorch is built without CUDA, or CUDA's headers are not there.

#include "fullwatt/engine/step_graph.hpp"

namespace fullwatt::engine {

base::Result<std::unique_ptr<StepGraph>> StepGraph::record(Step& /*step*/, const Fields& /*example*/,
                                                           std::uint64_t /*parts*/) {
  return base::fail(base::Error::Kind::unavailable, "fullwatt-train was built without CUDA");
}

bool StepGraph::is_recording() {
  return false;
}

}  // namespace fullwatt::engine

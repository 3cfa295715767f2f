#include "fullwatt/model/explanation.hpp"

#include <algorithm>

namespace fullwatt::model {

const Finding* Explanation::find(std::string_view id) const {
  const auto at = std::ranges::find(findings, id, &Finding::id);
  return at == findings.end() ? nullptr : &*at;
}

}  // namespace fullwatt::model

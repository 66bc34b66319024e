// Contexts: what is made in one dies with it.
#include "streams.hpp"

namespace fake {
namespace {

struct Context {
  int device;
};
FAKE_HANDLES(Context, contexts, 5, "context")

}  // namespace

void* create_context(int device) {
  return contexts().add(std::make_shared<Context>(Context{device}));
}

void destroy_context(void* context, const char* call) {
  contexts().take(context, call);
  end_streams_of(context);
  events().take_if([&](const Event& event) { return event.context == context; });
  if (current_context() == context) leave_device();
}

int device_of_context(void* context, const char* call) {
  return contexts().get(context, call)->device;
}

bool is_context(void* context) {
  return contexts().find(context) != nullptr;
}

}  // namespace fake

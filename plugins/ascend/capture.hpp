// What becomes of a captured stream: an aclmdlRI that is launched, and the data errors of the calls in it, which happen
// whenever it runs.
#pragma once

#include "device.hpp"

namespace rlk::ascend {

// What a graph shares with the streams that launched it: they tell of its data errors, also when it is gone.
// [thread-safe]
class GraphState {
public:
  explicit GraphState(Device& device) : device_(device), record_(device.take_record()) {}
  ~GraphState();  // no launch is in flight: see finish
  GraphState(const GraphState&) = delete;
  GraphState& operator=(const GraphState&) = delete;

  AclModel model = nullptr;
  uint64_t capture = 0;
  bool is_captured = false;  // the model is whole, and the graph's to destroy
  // For captured calls that may write to it.
  DeviceErrorRecord* record() {
    is_written_ = true;
    return record_;
  }

  // Launches wait for each other, wherever they are: they have one workspace and one record.
  void launch(Stream& on);
  // The error of a launch. *is_idle: there is none to come until the next launch.
  bool take(rlk_data_error& out, bool& is_idle);
  // The graph dies, after its launches; an error that has not been told yet stays.
  void finish();

private:
  Device& device_;
  std::mutex mutex_;
  DeviceErrorRecord* const record_;
  bool is_written_ = false;
  bool is_unread_ = false;  // launched since it was last read
  AclEvent end_ = nullptr;  // of the last launch
  bool is_recorded_ = false;
  AclStream last_on_ = nullptr;
};

}  // namespace rlk::ascend

# Read by ctest before the tests. A test of a plugin asks about the verdict on all its operators, whatever the machine is
# doing meanwhile; what tests the trial on demand says so itself.
if(NOT DEFINED ENV{RLK_VERIFY})
  set(ENV{RLK_VERIFY} eager)
endif()

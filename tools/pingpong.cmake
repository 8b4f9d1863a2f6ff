# rocelink pingpong, and with it the command's use of librocelink: the adapter stands in front of the
# system's libibverbs, as pkg-config gives it to every program. A library of its own, so that tests
# can feed it.
if(TARGET librocelink AND TARGET rl_net)
  add_library(rl_pingpong STATIC pingpong_arrival.c pingpong_counters.c pingpong_explain.c
    pingpong_echo.c pingpong_link.c pingpong_lossy.c pingpong_memory.c
    pingpong_options.c pingpong_plan.c pingpong_post.c pingpong_report.c pingpong_rnr.c
    pingpong_run.c pingpong_stream.c pingpong_xrc.c)
  target_include_directories(rl_pingpong PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(rl_pingpong PUBLIC librocelink rl_net rl_progress)
  target_sources(rocelink PRIVATE pingpong.c)
  target_link_libraries(rocelink PRIVATE rl_pingpong)
  set_target_properties(rocelink PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
endif()

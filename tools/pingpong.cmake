# rocelink pingpong, and with it the command's use of librocelink: the adapter stands in front of the
# system's libibverbs, as pkg-config gives it to every program.
if(TARGET librocelink AND TARGET rl_net)
  target_sources(rocelink PRIVATE pingpong.c pingpong_counters.c pingpong_explain.c pingpong_link.c
    pingpong_memory.c pingpong_options.c pingpong_plan.c pingpong_post.c pingpong_report.c pingpong_rnr.c
    pingpong_run.c)
  target_link_libraries(rocelink PRIVATE librocelink)
  set_target_properties(rocelink PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
endif()

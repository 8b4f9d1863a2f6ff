# rocelink devices
if(TARGET librocelink)
  target_sources(rocelink PRIVATE devices.c devices_collect.c devices_json.c devices_text.c)
  target_link_libraries(rocelink PRIVATE librocelink)
endif()
